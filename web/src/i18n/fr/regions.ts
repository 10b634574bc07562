import type en from "../en/regions";
import type { Area } from "../shape";

const regions: Area<typeof en> = {
  about: "Où sont stockées les données de ce locataire.",
  along: "Déplacer aussi les données",
  begins: "Commence",
  empty: "Aucun déplacement",
  emptyAbout:
    "Un déplacement copie toutes les données vers une autre région pendant que le locataire reste en service.",
  emptyStart:
    "Le locataire repart à vide : ses personnes, clés, contrôles et journaux ne sont pas déplacés, et ses anciennes données sont supprimées plus tard.",
  move: "Déplacer le locataire",
  moveNamed: "Déplacer {tenant} vers une autre région",
  moves: "Déplacements",
  now: "Les données de ce locataire sont dans {region}.",
  pause: "Attente des écritures",
  phase_catching_up: "Copie des derniers changements",
  phase_copying: "Copie des lignes",
  phase_done: "Le locataire est dans sa nouvelle région",
  phase_failed: "Le locataire est resté où il était",
  phase_paused: "Les écritures attendent la bascule",
  phase_rolling_back: "Retour en arrière",
  phase_switched: "Fin dans la nouvelle région",
  phase_waiting: "En attente",
  progress: "Avancement",
  progressOf: "Avancement du déplacement vers {region}",
  rows: "Lignes",
  started: "Demandé",
  stop: "Arrêter",
  stopAbout: "Le locataire reste où il est, et la copie est supprimée.",
  stopNamed: "Arrêter le déplacement vers {region}",
  stopTitle: "Arrêter ce déplacement ?",
  title: "Régions",
  where: "De et vers",
  window: "Commencer le",
  windowAbout: "Laissez vide pour commencer maintenant.",
};
export default regions;
