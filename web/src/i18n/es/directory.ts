import type en from "../en/directory";
import type { Area } from "../shape";

const directory: Area<typeof en> = {
  about: "Su directorio (SCIM 2.0) añade aquí personas y grupos, y retira el acceso cuando alguien se va.",
  add: "Crear un token",
  address: "Dirección para el directorio",
  createdBy: "Creado por",
  empty: "No hay ningún directorio conectado",
  emptyAbout: "Cree un token e introdúzcalo en su directorio con la dirección de arriba.",
  made: "El token {name} está listo",
  manages: "Personas del directorio: {people}. Grupos: {groups}.",
  nameAbout: "Para qué directorio es el token.",
  once: "Esta es la única vez que se muestra el token. Introdúzcalo ahora en su directorio.",
  revokeAbout: "El directorio se rechaza de inmediato. Las personas y los grupos que añadió se quedan.",
  revokeTitle: "¿Revocar este token?",
  rotateAbout: "Recibe un token nuevo. El antiguo funciona una hora más, para que pueda cambiarlo en su directorio.",
  rotateTitle: "¿Renovar este token?",
  title: "Directorio (SCIM)",
  token: "Token",
  tokens: "Tokens de directorios",
  defaultRoles: "Roles de todas las personas del directorio",
  defaultRolesAbout: "Lo que recibe cada persona que añade el directorio. Empiece con lo mínimo necesario.",
  group: "Nombre del grupo",
  match: "Relacionar personas por el sujeto",
  matchAbout:
    "externalId es el sujeto de las personas en su proveedor de identidad. El primer inicio de sesión allí encuentra a la persona que añadió el directorio.",
  roleMap: "Roles según el grupo",
  roleMapAbout:
    "Los nombres se comparan sin distinguir mayúsculas. Un cambio da de inmediato sus nuevos roles a todas las personas del directorio. Sin filas, los roles se administran aquí.",
  save: "Guardar lo que concede",
  twice: "El grupo {group} está aquí dos veces.",
};
export default directory;
