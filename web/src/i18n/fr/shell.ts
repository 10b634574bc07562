import type en from "../en/shell";
import type { Area } from "../shape";

const shell: Area<typeof en> = {
  account: "Compte",
  bouncer: "Bouncer",
  decision: "Décision",
  environment: "Environnement",
  group_overview: "Vue d’ensemble",
  group_controls: "Contrôles",
  group_estate: "Parc",
  group_people: "Personnes et accès",
  group_settings: "Réglages",
  home: "Aller au tableau de bord",
  keyLeaveEditor: "Quitter l’éditeur",
  keyRun: "Exécuter le contrôle (dans l’atelier)",
  keySave: "Enregistrer (dans l’atelier)",
  keys: "Raccourcis clavier",
  language: "Langue",
  menu: "Menu",
  nav: "Navigation principale",
  policy: "Politique",
  resource: "Ressource",
  scheme: "Couleurs",
  scheme_auto: "Comme le système",
  scheme_dark: "Sombre",
  scheme_light: "Clair",
  screen: "Écran",
  search: "Rechercher",
  searchHint: "Une politique, une ressource, un bouncer, un écran, ou l’identifiant d’une décision",
  signOut: "Se déconnecter",
  skip: "Aller au contenu",
};
export default shell;
