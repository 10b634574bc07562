import type en from "../en/revisions";
import type { Area } from "../shape";

const revisions: Area<typeof en> = {
  about: "Chaque changement crée une révision. Voyez quels bouncers l’ont reçue et lesquels l’appliquent.",
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
  emptyAbout: "Enregistrez un bouncer pour voir ici chaque changement de ses contrôles.",
  error: "Erreur",
  given: "Reçue",
  onTheWay: "En route",
  published: "Publiée",
  refused: "Refusée",
  state: "Convergence",
  status: "État",
};
export default revisions;
