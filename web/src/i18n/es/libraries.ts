import type en from "../en/libraries";
import type { Area } from "../shape";

const libraries: Area<typeof en> = {
  about: "Módulos que los controles importan, para escribir las reglas comunes una sola vez.",
  activateAbout: "Los controles de este entorno pueden importarla desde ahora.",
  create: "Crear y escribir",
  deactivateAbout: "Los controles ya no pueden importarla. El cambio se rechaza mientras un control activo lo haga.",
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
  users: "Usada por",
  usersAbout: {
    one: "{count} política la usa. Un cambio le llega enseguida.",
    many: "{count} políticas la usan. Un cambio llega a todas a la vez.",
    other: "{count} políticas la usan. Un cambio llega a todas a la vez.",
  },
};
export default libraries;
