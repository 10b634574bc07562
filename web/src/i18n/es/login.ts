import type en from "../en/login";
import type { Area } from "../shape";

const login: Area<typeof en> = {
  challengeExpired: "Este inicio de sesión tardó demasiado o ya se usó. Empiece de nuevo con su contraseña.",
  code: "Código",
  codeAbout: "El código de su aplicación de autenticación, o un código de recuperación.",
  codeWrong: "El código es incorrecto o ya se usó.",
  otherAccount: "Usar otra cuenta",
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
  error_account_disabled: "Su cuenta está desactivada. Pregunte a un administrador.",
  error_account_exists:
    "Ya hay una cuenta con su dirección de correo. Un administrador debe vincularla con su identidad.",
  error_code_refused: "El proveedor de identidad rechazó el inicio de sesión. Empiece de nuevo.",
  error_cross_origin: "Inicie sesión desde aquí: una página de otro sitio le llevó al inicio de sesión.",
  error_email_domain_denied: "Las direcciones de correo de su dominio no pueden iniciar sesión aquí.",
  error_email_not_verified: "El proveedor de identidad no ha verificado su dirección de correo.",
  error_invalid_id_token:
    "La respuesta del proveedor de identidad no es válida. Empiece de nuevo; si se repite, pregunte a un administrador.",
  error_invalid_state:
    "Este inicio de sesión no empezó en este navegador, es demasiado antiguo o ya se usó. Empiece de nuevo.",
  error_no_account: "No tiene cuenta aquí. Un administrador debe vincular una con su identidad.",
  error_other: "El inicio de sesión no funcionó. Empiece de nuevo; si se repite, pregunte a un administrador.",
  error_provider_unfit: "Ahora no se puede usar el proveedor de identidad. Pregunte a un administrador.",
  error_sign_on_denied: "El proveedor de identidad no inició su sesión.",
  error_sign_on_off: "Las personas de este inquilino no inician sesión en un proveedor de identidad.",
  error_target_unreachable: "El proveedor de identidad no responde. Inténtelo más tarde.",
  error_too_many_sign_ins: "Hubo demasiados inicios de sesión desde su red. Inténtelo más tarde.",
  error_wrong_issuer: "La respuesta no es del proveedor de identidad al que se preguntó. Empiece de nuevo.",
};
export default login;
