import type en from "../en/domains";
import type { Area } from "../shape";

const domains: Area<typeof en> = {
  about: "Las peticiones a un dominio verificado pertenecen a este inquilino.",
  add: "Añadir dominio",
  certificate: "Certificado",
  certificateAbout: "PEM, con su cadena. Deje ambos vacíos si TLS termina delante de Gatehouse.",
  check: "Comprobar ahora",
  default: "Incluido con el inquilino",
  domain: "Dominio",
  empty: "Aún no hay dominios",
  emptyAbout: "Añada un dominio propio para servir este inquilino con su nombre.",
  expires: "Caduca",
  found: "{domain} está verificado.",
  key: "Clave privada",
  keyAbout: "Se guarda cifrada y no vuelve a mostrarse.",
  recordName: "Nombre",
  recordType: "Tipo",
  recordValue: "Valor",
  records: "Registros DNS de {domain}",
  recordsAbout:
    "Cree estos registros en su proveedor de DNS y después compruebe. Los cambios de DNS pueden tardar unos minutos.",
  remove: "Quitar",
  removeAbout: "Las peticiones a él dejan de llegar a este inquilino. Su certificado se elimina.",
  removeNamed: "Quitar {domain}",
  removeTitle: "¿Quitar este dominio?",
  replace: "Cambiar certificado",
  show: "Registros DNS",
  status: "Propiedad",
  title: "Dominios",
  verifiedAt: "Verificado",
};
export default domains;
