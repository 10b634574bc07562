import type en from "../en/settings";
import type { Area } from "../shape";

const settings: Area<typeof en> = {
  about: "Su cuenta y sus sesiones. El idioma y los colores están en el menú de la cuenta.",
  actions: "Acciones",
  address: "Dirección",
  browser: "Navegador",
  current: "Esta",
  device: "Dispositivo",
  end: "Terminar",
  endAbout: "Quien use esta sesión tendrá que volver a iniciarla.",
  endNamed: "Terminar la sesión en {name}",
  endOthers: "Terminar todas las demás sesiones",
  endOthersAbout:
    "Usted sigue conectado aquí. Los demás navegadores y programas suyos tendrán que iniciar sesión de nuevo. Las claves de API siguen.",
  endTitle: "¿Terminar esta sesión?",
  expires: "Termina como máximo",
  kind: "Tipo",
  lastUsed: "Último uso",
  noSessions: "No hay sesiones",
  noSessionsAbout: "Usa una clave de API, que no tiene sesión.",
  permissions: "Permisos",
  profile: "Perfil",
  sessionList: "Sus sesiones",
  sessions: "Sesiones",
  signedIn: "Inicio",
  tenant: "Organización",
  token: "Programa",
  unknownDevice: "Dispositivo desconocido",
};
export default settings;
