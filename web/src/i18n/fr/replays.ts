import type en from "../en/replays";
import type { Area } from "../shape";

const replays: Area<typeof en> = {
  about:
    "Réévaluez des requêtes enregistrées avec un changement appliqué, et voyez quelles décisions changeraient avant que quiconque ne le remarque.",
  activeOnes: "Les contrôles actifs",
  cancel: "Annuler le rejeu",
  controls: "Contrôles",
  controlsAbout:
    "Ils sont traités comme actifs. Si vous n’en choisissez aucun, seuls les contrôles actifs sont évalués.",
  done: "{done} évaluées, {left} restantes",
  empty: "Pas encore de rejeu",
  emptyAbout: "Lancez-en un pour voir comment un brouillon aurait décidé des requêtes de la dernière journée.",
  evaluated: "Évaluées",
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
  window: "Période",
};
export default replays;
