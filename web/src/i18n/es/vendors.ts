import type en from "../en/vendors";
import type { Area } from "../shape";

const vendors: Area<typeof en> = {
  about: "Proveedores que integran gatehouse en sus productos. Cada uno crea inquilinos con una clave de la API OEM.",
  add: "Registrar un proveedor",
  change: "Cambiar un proveedor",
  deleteAbout: "Las claves del proveedor terminan de inmediato. Sus inquilinos se quedan como están.",
  deleteTitle: "¿Quitar este proveedor?",
  empty: "Aún no hay proveedores",
  emptyAbout: "Registre un proveedor que cree inquilinos con la API OEM y entréguele la clave.",
  id: "Id.",
  key: "Clave del proveedor",
  keyUsed: "Último uso de la clave",
  keys: "Claves",
  keysAbout: "Tras una renovación hay dos durante un tiempo.",
  made: "La clave de {name} está lista",
  maxTenants: "Inquilinos como máximo",
  maxTenantsAbout: "Los inquilinos por encima de un límite menor se quedan.",
  once: "Esta es la única vez que se muestra la clave. Entréguela ahora al proveedor.",
  remove: "Quitar",
  requests: "Peticiones por hora",
  requestsAbout: "Con todas las claves del proveedor juntas.",
  rotateAbout: "Recibe una clave nueva. La antigua funciona una hora más, para que el proveedor pueda cambiarla.",
  rotateTitle: "¿Renovar la clave de este proveedor?",
  tenants: "Inquilinos",
  tenantsOf: "{used} de {limit}",
  until: "funciona hasta",
};
export default vendors;
