import type en from "../en/users";
import type { Area } from "../shape";

const users: Area<typeof en> = {
  about: "Les personnes qui se connectent et les sujets que les contrôles connaissent par leur identifiant.",
  actions: "Actions",
  add: "Ajouter une personne",
  deleteAbout:
    "Le compte, ses sessions et ses propres clés d’API prennent fin aussitôt. L’audit conserve ce que la personne a fait.",
  deleteNamed: "Supprimer {name}",
  deleteTitle: "Supprimer cette personne ?",
  department: "Service",
  editNamed: "Modifier {name}",
  email: "Adresse e-mail",
  empty: "Il n’y a encore personne",
  emptyAbout: "Ajoutez celles et ceux qui écrivent des contrôles, exploitent des bouncers ou lisent l’audit.",
  lastSignIn: "Dernière connexion",
  password: "Mot de passe",
  passwordAbout: "Au moins 8 caractères. Sans mot de passe, la personne ne peut pas se connecter ainsi.",
  reason: "Motif",
  reasonAbout: "L’audit le conserve avec le changement de rôles.",
  role_admin: "Administrateur",
  role_auditor: "Auditeur",
  role_operator: "Opérateur",
  role_platform_admin: "Administrateur de la plateforme",
  role_policy_author: "Auteur de politiques",
  role_resource_manager: "Gestionnaire de ressources",
  role_viewer: "Lecteur",
  roles: "Rôles",
  rolesAbout: "Commencez par le strict nécessaire.",
  search: "Chercher un nom ou une adresse e-mail",
  showPassword: "Afficher le mot de passe",
  status: "État",
  title: "Utilisateurs",
  username: "Nom d’utilisateur",
};
export default users;
