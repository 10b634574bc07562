import type en from "../en/users";
import type { Area } from "../shape";

const users: Area<typeof en> = {
  about: "Personas que inician sesión y sujetos que los controles conocen por su id.",
  actions: "Acciones",
  add: "Añadir una persona",
  deleteAbout:
    "La cuenta, sus sesiones y sus propias claves de API terminan de inmediato. La auditoría conserva lo que hizo la persona.",
  deleteNamed: "Eliminar a {name}",
  deleteTitle: "¿Eliminar a esta persona?",
  department: "Departamento",
  editNamed: "Editar a {name}",
  email: "Correo electrónico",
  empty: "Todavía no hay nadie",
  emptyAbout: "Añada a quienes escriben controles, operan bouncers o leen la auditoría.",
  lastSignIn: "Último inicio de sesión",
  password: "Contraseña",
  passwordAbout: "Al menos 8 caracteres. Sin ella, la persona no puede iniciar sesión con contraseña.",
  reason: "Motivo",
  reasonAbout: "La auditoría lo guarda junto al cambio de roles.",
  role_admin: "Administrador",
  role_auditor: "Auditor",
  role_operator: "Operador",
  role_platform_admin: "Administrador de la plataforma",
  role_policy_author: "Autor de políticas",
  role_resource_manager: "Gestor de recursos",
  role_viewer: "Lector",
  roles: "Roles",
  rolesAbout: "Empiece con lo mínimo necesario.",
  search: "Buscar un nombre o un correo electrónico",
  showPassword: "Mostrar la contraseña",
  status: "Estado",
  title: "Usuarios",
  username: "Nombre de usuario",
};
export default users;
