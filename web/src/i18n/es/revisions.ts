import type en from "../en/revisions";
import type { Area } from "../shape";

const revisions: Area<typeof en> = {
  about: "Cada cambio crea una revisión. Vea qué bouncers la recibieron y cuáles la aplican.",
  activated: "Activa desde",
  active: "Aplica",
  arrived: {
    one: "{arrived} de {count} bouncer al día",
    many: "{arrived} de {count} de bouncers al día",
    other: "{arrived} de {count} bouncers al día",
  },
  bouncer: "Bouncer",
  converged: "Al día",
  empty: "Ningún bouncer recibe revisiones aquí",
  emptyAbout: "Registre un bouncer para ver aquí cada cambio de sus controles.",
  error: "Error",
  given: "Recibida",
  onTheWay: "En camino",
  published: "Publicada",
  refused: "Rechazada",
  state: "Convergencia",
  status: "Estado",
};
export default revisions;
