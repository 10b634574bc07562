import type en from "../en/keys";
import type { Area } from "../shape";

const keys: Area<typeof en> = {
  about: "Claves para programas. Cada una tiene permisos y puede limitarse a un entorno.",
  actions: "Acciones",
  add: "Crear una clave",
  days: { one: "{count} día", many: "{count} de días", other: "{count} días" },
  empty: "Todavía no hay claves",
  emptyAbout: "Un programa que pide decisiones, o un proceso que despliega controles, se identifica con una clave.",
  environmentAbout: "Una clave de un entorno no puede hacer nada fuera de él.",
  expired: "Caducada",
  expires: "Caduca",
  hint: "Empieza por",
  key: "Clave de API",
  lastUsed: "Último uso",
  made: "La clave {name} está lista",
  name: "Nombre",
  once: "Esta es la única vez que se muestra la clave. Guárdela donde su programa lee sus secretos.",
  revoke: "Revocar",
  revokeAbout: "Los programas que usan la clave se rechazan de inmediato. Una clave revocada no se recupera.",
  revokeNamed: "Revocar {name}",
  revokeTitle: "¿Revocar esta clave?",
  rotate: "Renovar",
  rotateAbout:
    "Recibe una clave nueva con los mismos permisos. La antigua funciona una hora más, para que pueda cambiar sus programas.",
  rotateNamed: "Renovar {name}",
  rotateTitle: "¿Renovar esta clave?",
  scopes: "Permisos",
  scopesAbout: "Marque solo lo que el programa necesita. Puede conceder lo que usted mismo tiene.",
  tryIt: "Pruébela",
};
export default keys;
