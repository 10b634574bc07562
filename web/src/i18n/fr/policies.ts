import type en from "../en/policies";
import type { Area } from "../shape";

const policies: Area<typeof en> = {
  about: "Les contrôles disent qui peut faire quoi.",
  activate: "Activer",
  activateAbout: "Le contrôle décide désormais dans cet environnement. Les bouncers le reçoivent en quelques secondes.",
  anyBouncer: "tous",
  bouncer: "Bouncer",
  changed: "Dernier changement",
  choose: "Choisir",
  chooseOne: "Choisir {name}",
  chosen: { one: "{count} contrôle choisi", many: "{count} de contrôles choisis", other: "{count} contrôles choisis" },
  deactivate: "Désactiver",
  deactivateAbout: "Le contrôle ne décide plus rien. Les requêtes que lui seul autorisait sont refusées.",
  deletedAt: "Supprimé",
  deniedShare: "Refusé, 24 h",
  empty: "Aucun contrôle pour l’instant",
  emptyAbout: "Un contrôle dit qui peut faire quoi avec une ressource. Partez d’un modèle ou écrivez-en un.",
  evaluations: "Évaluations",
  findName: "Partie du nom",
  name: "Nom",
  new: "Nouveau contrôle",
  notDelivered: "Non livré",
  resource: "Ressource",
  restore: "Restaurer",
  restoreOne: "Restaurer {name}",
  showDeleted: "Afficher les supprimés",
  status: "État",
  title: "Politiques",
  version: "Version",
  wholeTenant: "toute l’organisation",
};
export default policies;
