import type en from "../en/policies";
import type { Area } from "../shape";

const policies: Area<typeof en> = {
  about: "Los controles dicen quién puede hacer qué.",
  activate: "Activar",
  activateAbout: "El control decide en este entorno desde ahora. Los bouncers lo reciben en segundos.",
  anyBouncer: "todos",
  bouncer: "Bouncer",
  changed: "Último cambio",
  choose: "Elegir",
  chooseOne: "Elegir {name}",
  chosen: {
    one: "{count} control elegido",
    many: "{count} de controles elegidos",
    other: "{count} controles elegidos",
  },
  deactivate: "Desactivar",
  deactivateAbout: "El control deja de decidir. Se rechazan las peticiones que solo él permitía.",
  deletedAt: "Eliminado",
  deniedShare: "Denegado, 24 h",
  empty: "Aún no hay controles",
  emptyAbout: "Un control dice quién puede hacer qué con un recurso. Parta de una plantilla o escriba uno.",
  evaluations: "Evaluaciones",
  findName: "Parte del nombre",
  name: "Nombre",
  new: "Nuevo control",
  notDelivered: "No entregado",
  resource: "Recurso",
  restore: "Restaurar",
  restoreOne: "Restaurar {name}",
  showDeleted: "Mostrar eliminados",
  status: "Estado",
  title: "Políticas",
  version: "Versión",
  wholeTenant: "toda la organización",
};
export default policies;
