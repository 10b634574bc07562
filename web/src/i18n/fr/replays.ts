import type en from "../en/replays";
import type { Area } from "../shape";

const replays: Area<typeof en> = {
  about:
    "Rejouez des requêtes enregistrées avec un changement, et voyez ce qui basculerait avant que personne ne le remarque.",
  activeOnes: "Les contrôles actifs",
  cancel: "Annuler le rejeu",
  controls: "Contrôles",
  controlsAbout: "Ils sont traités comme actifs. Sans choix, seuls les contrôles actifs décident à nouveau.",
  done: "{done} décidées, {left} restantes",
  empty: "Pas encore de rejeu",
  emptyAbout: "Lancez-en un pour voir comment un brouillon aurait décidé des requêtes de la dernière journée.",
  evaluated: "Décidées",
  hours: {
    one: "la dernière heure ({count})",
    many: "les {count} d’heures passées",
    other: "les {count} dernières heures",
  },
  nothing: "Aucune décision enregistrée avec son entrée sur cette période.",
  one: "Rejeu {id}",
  progress: "Progression",
  source: "Décisions de",
  sourceAbout: "Choisissez la production pour voir ce qu’une promotion changerait.",
  start: "Lancer un rejeu",
  started: "Lancé",
  status: "État",
  title: "Rejeux",
  window: "Période",
};
export default replays;
