import type en from "../en/login";
import type { Area } from "../shape";

const login: Area<typeof en> = {
  about: "Utilisez le compte de votre organisation.",
  action: "Se connecter",
  ended: "Votre session est terminée, ou vous avez suivi un lien. Connectez-vous pour continuer.",
  linkFailed:
    "Ce lien a déjà servi, est trop ancien ou vient d’une autre machine. Connectez-vous avec votre mot de passe.",
  password: "Mot de passe",
  provider: "Se connecter avec {name}",
  refused: "Le nom d’utilisateur ou le mot de passe est incorrect.",
  show: "Afficher ou masquer le mot de passe",
  title: "Se connecter",
  username: "Nom d’utilisateur",
};
export default login;
