import type en from "../en/login";
import type { Area } from "../shape";

const login: Area<typeof en> = {
  challengeExpired: "Cette connexion a pris trop de temps ou a déjà servi. Recommencez avec votre mot de passe.",
  code: "Code",
  codeAbout: "Le code de votre application d’authentification, ou un code de récupération.",
  codeWrong: "Le code est faux ou a déjà servi.",
  otherAccount: "Utiliser un autre compte",
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
  error_account_disabled: "Votre compte est désactivé. Adressez-vous à un administrateur.",
  error_account_exists:
    "Un compte existe déjà avec votre adresse e-mail. Un administrateur doit le relier à votre identité.",
  error_code_refused: "Le fournisseur d'identité a refusé la connexion. Recommencez.",
  error_cross_origin: "Connectez-vous d'ici : une page d'un autre site vous a mené à la connexion.",
  error_email_domain_denied: "Les adresses e-mail de votre domaine ne peuvent pas se connecter ici.",
  error_email_not_verified: "Le fournisseur d'identité n'a pas vérifié votre adresse e-mail.",
  error_invalid_id_token:
    "La réponse du fournisseur d'identité n'est pas valide. Recommencez ; si cela se répète, adressez-vous à un administrateur.",
  error_invalid_state:
    "Cette connexion n'a pas été commencée dans ce navigateur, est trop ancienne ou a déjà servi. Recommencez.",
  error_no_account: "Vous n'avez pas de compte ici. Un administrateur doit en relier un à votre identité.",
  error_other: "La connexion n'a pas abouti. Recommencez ; si cela se répète, adressez-vous à un administrateur.",
  error_provider_unfit: "Le fournisseur d'identité est inutilisable pour l'instant. Adressez-vous à un administrateur.",
  error_sign_on_denied: "Le fournisseur d'identité ne vous a pas connecté.",
  error_sign_on_off: "Les personnes de ce locataire ne se connectent pas auprès d'un fournisseur d'identité.",
  error_target_unreachable: "Le fournisseur d'identité ne répond pas. Réessayez plus tard.",
  error_too_many_sign_ins: "Trop de connexions depuis votre réseau. Réessayez plus tard.",
  error_wrong_issuer: "La réponse ne vient pas du fournisseur d'identité interrogé. Recommencez.",
};
export default login;
