import type en from "../en/directory";
import type { Area } from "../shape";

const directory: Area<typeof en> = {
  about: "Votre annuaire (SCIM 2.0) ajoute ici des personnes et des groupes, et retire l'accès quand quelqu'un part.",
  add: "Créer un jeton",
  address: "Adresse pour l'annuaire",
  createdBy: "Créé par",
  empty: "Aucun annuaire n'est connecté",
  emptyAbout: "Créez un jeton et saisissez-le dans votre annuaire avec l'adresse ci-dessus.",
  made: "Le jeton {name} est prêt",
  manages: "Personnes de l'annuaire : {people}. Groupes : {groups}.",
  nameAbout: "À quel annuaire le jeton est destiné.",
  once: "Le jeton n'est affiché que cette fois. Saisissez-le maintenant dans votre annuaire.",
  revokeAbout: "L'annuaire est refusé aussitôt. Les personnes et les groupes qu'il a ajoutés restent.",
  revokeTitle: "Révoquer ce jeton ?",
  rotateAbout:
    "Vous recevez un nouveau jeton. L'ancien fonctionne encore une heure, le temps de le changer dans votre annuaire.",
  rotateTitle: "Remplacer ce jeton ?",
  title: "Annuaire (SCIM)",
  token: "Jeton",
  tokens: "Jetons des annuaires",
  defaultRoles: "Rôles de toutes les personnes de l'annuaire",
  defaultRolesAbout: "Ce que reçoit toute personne que l'annuaire ajoute. Commencez par le strict nécessaire.",
  group: "Nom du groupe",
  match: "Relier les personnes par le sujet",
  matchAbout:
    "externalId est le sujet des personnes chez votre fournisseur d'identité. La première connexion là-bas trouve la personne que l'annuaire a ajoutée.",
  roleMap: "Rôles selon le groupe",
  roleMapAbout:
    "Les noms sont comparés sans tenir compte de la casse. Un changement donne aussitôt leurs nouveaux rôles aux personnes de l'annuaire. Sans ligne, les rôles se gèrent ici.",
  save: "Enregistrer ce qui est accordé",
  twice: "Le groupe {group} figure ici deux fois.",
};
export default directory;
