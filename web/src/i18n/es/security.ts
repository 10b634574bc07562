import type en from "../en/security";
import type { Area } from "../shape";

const security: Area<typeof en> = {
  about: "Un segundo factor para sus inicios de sesión con contraseña.",
  codeWrong:
    "El código es incorrecto. Compruebe que el reloj de su dispositivo va bien y escriba el código que la aplicación muestra ahora.",
  codes: "Códigos de recuperación",
  codesLeft: "Códigos de recuperación restantes",
  codesText: "Códigos de recuperación como texto",
  codesNote: "Guarde estos códigos. Cada uno inicia sesión una vez sin la aplicación. No se vuelven a mostrar.",
  confirm: "Confirmar",
  confirmationWrong: "La contraseña o el código es incorrecto.",
  disable: "Desactivar",
  disableAbout: "Bastará su contraseña para iniciar sesión. Sus demás sesiones terminan.",
  enrol: "Configurar una aplicación de autenticación",
  factor: "Segundo factor",
  firstCode: "Código que muestra la aplicación",
  must: "Configure un segundo factor",
  mustAbout:
    "Su organización exige un segundo factor para los inicios de sesión con contraseña. Configúrelo para continuar.",
  none: "No tiene segundo factor. Con uno, su contraseña sola no inicia sesión.",
  off: "Desactivado",
  on: "Activado",
  password: "Su contraseña",
  passwordWrong: "La contraseña es incorrecta.",
  qr: "Código QR para la aplicación de autenticación",
  renew: "Nuevos códigos de recuperación",
  renewAbout: "Sus códigos de recuperación actuales dejan de servir.",
  reset: "Restablecer el segundo factor",
  resetAbout: "Para quien ha perdido la aplicación y los códigos de recuperación. Todas sus sesiones terminan.",
  scan: "Escanee este código con su aplicación de autenticación.",
  secret: "Secreto",
  since: "Desde",
  state: "Estado",
  typeSecret: "O escriba el secreto en la aplicación.",
};
export default security;
