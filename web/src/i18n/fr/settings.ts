import type en from "../en/settings";
import type { Area } from "../shape";

const settings: Area<typeof en> = {
  about: "Votre compte et vos sessions. La langue et les couleurs sont dans le menu du compte.",
  actions: "Actions",
  address: "Adresse",
  browser: "Navigateur",
  current: "Celle-ci",
  device: "Appareil",
  end: "Terminer",
  endAbout: "La personne qui utilise cette session devra se reconnecter.",
  endNamed: "Terminer la session sur {name}",
  endOthers: "Terminer toutes les autres sessions",
  endOthersAbout:
    "Vous restez connecté ici. Vos autres navigateurs et programmes devront se reconnecter. Les clés d’API continuent.",
  endTitle: "Terminer cette session ?",
  expires: "Se termine au plus tard",
  kind: "Type",
  lastUsed: "Dernière utilisation",
  noSessions: "Aucune session",
  noSessionsAbout: "Vous utilisez une clé d’API, qui n’a pas de session.",
  permissions: "Autorisations",
  profile: "Profil",
  sessionList: "Vos sessions",
  sessions: "Sessions",
  signedIn: "Connexion",
  tenant: "Organisation",
  token: "Programme",
  unknownDevice: "Appareil inconnu",
};
export default settings;
