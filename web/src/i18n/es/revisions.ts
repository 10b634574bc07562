import type en from "../en/revisions";
import type { Area } from "../shape";

const revisions: Area<typeof en> = {
  about: "Un cambio es una nueva revisión. Vea quién la ha recibido y quién la aplica.",
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
  emptyAbout: "Registre un bouncer y cada cambio de sus controles aparecerá aquí.",
  error: "Error",
  given: "Ha recibido",
  onTheWay: "En camino",
  published: "Entregada",
  refused: "Rechazada",
  state: "Convergencia",
  status: "Estado",
  title: "Revisiones",
};
export default revisions;
