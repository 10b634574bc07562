import type en from "../en/security";
import type { Area } from "../shape";

const security: Area<typeof en> = {
  about: "Un second facteur pour vos connexions avec un mot de passe.",
  codeWrong:
    "Le code est faux. Vérifiez l’heure de votre appareil et tapez le code que l’application montre maintenant.",
  codes: "Codes de récupération",
  codesLeft: "Codes de récupération restants",
  codesText: "Codes de récupération en texte",
  codesNote: "Gardez ces codes. Chacun vous connecte une fois sans l’application. Ils ne sont plus montrés.",
  confirm: "Confirmer",
  confirmationWrong: "Le mot de passe ou le code est faux.",
  disable: "Désactiver",
  disableAbout: "Votre mot de passe suffira pour vous connecter. Vos autres sessions prennent fin.",
  enrol: "Configurer une application d’authentification",
  factor: "Second facteur",
  firstCode: "Code que montre l’application",
  must: "Configurez un second facteur",
  mustAbout:
    "Votre organisation exige un second facteur pour les connexions avec un mot de passe. Configurez-le pour continuer.",
  none: "Vous n’avez pas de second facteur. Avec lui, votre mot de passe seul ne connecte personne.",
  off: "Désactivé",
  on: "Activé",
  password: "Votre mot de passe",
  passwordWrong: "Le mot de passe est faux.",
  qr: "Code QR pour l’application d’authentification",
  renew: "Nouveaux codes de récupération",
  renewAbout: "Vos codes de récupération actuels cessent de servir.",
  reset: "Réinitialiser le second facteur",
  resetAbout: "Pour qui a perdu l’application et les codes de récupération. Toutes ses sessions prennent fin.",
  scan: "Scannez ce code avec votre application d’authentification.",
  secret: "Secret",
  since: "Depuis",
  state: "État",
  typeSecret: "Ou tapez le secret dans l’application.",
};
export default security;
