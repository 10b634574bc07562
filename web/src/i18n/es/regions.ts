import type en from "../en/regions";
import type { Area } from "../shape";

const regions: Area<typeof en> = {
  about: "Dónde se guardan los datos de este inquilino.",
  along: "Llevar también los datos",
  begins: "Empieza",
  empty: "Aún no hay traslados",
  emptyAbout: "Un traslado copia todos los datos a otra región mientras el inquilino sigue en uso.",
  emptyStart:
    "El inquilino empieza vacío: sus personas, claves, controles y registros no se trasladan, y sus datos antiguos se eliminan más tarde.",
  move: "Trasladar inquilino",
  moveNamed: "Trasladar {tenant} a otra región",
  moves: "Traslados",
  now: "Los datos de este inquilino están en {region}.",
  pause: "Espera de escrituras",
  phase_catching_up: "Copiando los últimos cambios",
  phase_copying: "Copiando filas",
  phase_done: "El inquilino está en su nueva región",
  phase_failed: "El inquilino se quedó donde estaba",
  phase_paused: "Las escrituras esperan el cambio",
  phase_rolling_back: "Deshaciendo",
  phase_switched: "Terminando en la nueva región",
  phase_waiting: "En espera",
  progress: "Progreso",
  progressOf: "Progreso del traslado a {region}",
  rows: "Filas",
  started: "Solicitado",
  stop: "Detener",
  stopAbout: "El inquilino se queda donde está y la copia se elimina.",
  stopNamed: "Detener el traslado a {region}",
  stopTitle: "¿Detener este traslado?",
  title: "Regiones",
  where: "Origen y destino",
  window: "Empezar el",
  windowAbout: "Déjelo vacío para empezar ahora.",
};
export default regions;
