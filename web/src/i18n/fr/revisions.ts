import type en from "../en/revisions";
import type { Area } from "../shape";

const revisions: Area<typeof en> = {
  about: "Un changement est une nouvelle révision. Voyez qui l’a reçue et qui l’applique.",
  activated: "Active depuis",
  active: "Applique",
  arrived: {
    one: "{arrived} bouncer à jour sur {count}",
    many: "{arrived} bouncers à jour sur {count}",
    other: "{arrived} bouncers à jour sur {count}",
  },
  bouncer: "Bouncer",
  converged: "À jour",
  empty: "Aucun bouncer ne reçoit de révisions ici",
  emptyAbout: "Enregistrez un bouncer, et chaque changement de ses contrôles apparaîtra ici.",
  error: "Erreur",
  given: "A reçu",
  onTheWay: "En route",
  published: "Remise",
  refused: "Refusée",
  state: "Convergence",
  status: "État",
  title: "Révisions",
};
export default revisions;
