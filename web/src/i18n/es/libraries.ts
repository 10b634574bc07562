import type en from "../en/libraries";
import type { Area } from "../shape";

const libraries: Area<typeof en> = {
  about: "Módulos que los controles importan: lo que varios controles necesitan se escribe una vez.",
  activateAbout: "Desde ese momento los controles de este entorno pueden importarla.",
  create: "Crear y escribir",
  deactivateAbout: "Los controles ya no pueden importarla. Mientras uno activo la importe, el cambio se rechaza.",
  delete: "Eliminar la biblioteca",
  deleteAbout: "Los controles ya no pueden importarla. Se puede restaurar por su id.",
  description: "Descripción",
  empty: "Aún no hay bibliotecas",
  emptyAbout:
    "Una biblioteca contiene funciones y listas que varios controles importan. Un cambio llega a todos a la vez.",
  new: "Nueva biblioteca",
  noUsers: "Ninguna política usa esta biblioteca.",
  package: "Paquete",
  packageAbout: "Los controles la importan con este nombre. Está por debajo de lib.",
  title: "Bibliotecas",
  users: "Usada por",
  usersAbout: {
    one: "{count} política la usa. Un cambio le llega enseguida.",
    many: "{count} políticas la usan. Un cambio llega a todas a la vez.",
    other: "{count} políticas la usan. Un cambio llega a todas a la vez.",
  },
};
export default libraries;
