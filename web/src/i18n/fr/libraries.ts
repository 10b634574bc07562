import type en from "../en/libraries";
import type { Area } from "../shape";

const libraries: Area<typeof en> = {
  about: "Des modules que les contrôles importent, pour n’écrire les règles communes qu’une fois.",
  activateAbout: "Les contrôles de cet environnement peuvent désormais l’importer.",
  create: "Créer et écrire",
  deactivateAbout:
    "Les contrôles ne peuvent plus l’importer. Le changement est refusé tant qu’un contrôle actif le fait.",
  delete: "Supprimer la bibliothèque",
  deleteAbout: "Les contrôles ne peuvent plus l’importer. Elle peut être restaurée par son id.",
  description: "Description",
  empty: "Aucune bibliothèque",
  emptyAbout:
    "Une bibliothèque contient des fonctions et des listes que plusieurs contrôles importent. Un changement les atteint tous à la fois.",
  new: "Nouvelle bibliothèque",
  noUsers: "Aucune politique n’utilise cette bibliothèque.",
  package: "Paquet",
  packageAbout: "Les contrôles l’importent sous ce nom. Il se trouve sous lib.",
  users: "Utilisée par",
  usersAbout: {
    one: "{count} politique l’utilise. Un changement l’atteint aussitôt.",
    many: "{count} politiques l’utilisent. Un changement les atteint toutes à la fois.",
    other: "{count} politiques l’utilisent. Un changement les atteint toutes à la fois.",
  },
};
export default libraries;
