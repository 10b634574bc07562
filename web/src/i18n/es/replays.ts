import type en from "../en/replays";
import type { Area } from "../shape";

const replays: Area<typeof en> = {
  about:
    "Vuelva a evaluar peticiones registradas con un cambio aplicado y vea qué decisiones cambiarían antes de que nadie lo note.",
  activeOnes: "Los controles activos",
  cancel: "Cancelar la repetición",
  controls: "Controles",
  controlsAbout: "Se tratan como activos. Si no elige ninguno, solo se evalúan los controles activos.",
  done: "{done} evaluadas, quedan {left}",
  empty: "Todavía no hay repeticiones",
  emptyAbout: "Inicie una para ver cómo habría decidido un borrador las peticiones del último día.",
  evaluated: "Evaluadas",
  hours: { one: "la última {count} hora", many: "las últimas {count} de horas", other: "las últimas {count} horas" },
  nothing: "No hay decisiones registradas con entrada en este periodo.",
  one: "Repetición {id}",
  progress: "Progreso",
  source: "Decisiones de",
  sourceAbout: "Elija producción para ver qué cambiaría una promoción.",
  start: "Iniciar una repetición",
  started: "Iniciada",
  status: "Estado",
  window: "Periodo",
};
export default replays;
