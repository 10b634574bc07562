import type en from "../en/shell";
import type { Area } from "../shape";

const shell: Area<typeof en> = {
  account: "Cuenta",
  bouncer: "Bouncer",
  decision: "Decisión",
  environment: "Entorno",
  group_overview: "Resumen",
  group_controls: "Controles",
  group_estate: "Inventario",
  group_people: "Personas y acceso",
  group_settings: "Ajustes",
  home: "Ir al panel",
  keyLeaveEditor: "Salir del editor",
  keyRun: "Ejecutar el control (en el banco de trabajo)",
  keySave: "Guardar (en el banco de trabajo)",
  keys: "Atajos de teclado",
  language: "Idioma",
  menu: "Menú",
  nav: "Navegación principal",
  policy: "Política",
  resource: "Recurso",
  scheme: "Colores",
  scheme_auto: "Como el sistema",
  scheme_dark: "Oscuro",
  scheme_light: "Claro",
  screen: "Pantalla",
  search: "Buscar",
  searchHint: "Una política, un recurso, un bouncer, una pantalla o el id de una decisión",
  signOut: "Cerrar sesión",
  skip: "Ir al contenido",
};
export default shell;
