import type en from "../en/login";
import type { Area } from "../shape";

const login: Area<typeof en> = {
  about: "Use la cuenta de su organización.",
  action: "Iniciar sesión",
  ended: "Su sesión ha terminado o ha seguido un enlace. Inicie sesión para continuar.",
  linkFailed: "Este enlace ya se usó, es demasiado antiguo o se creó en otra máquina. Inicie sesión con su contraseña.",
  password: "Contraseña",
  provider: "Iniciar sesión con {name}",
  refused: "El nombre de usuario o la contraseña no son correctos.",
  show: "Mostrar u ocultar la contraseña",
  title: "Iniciar sesión",
  username: "Nombre de usuario",
};
export default login;
