import type en from "../en/domains";
import type { Area } from "../shape";

const domains: Area<typeof en> = {
  about: "Les requêtes vers un domaine vérifié appartiennent à ce locataire.",
  add: "Ajouter un domaine",
  certificate: "Certificat",
  certificateAbout: "PEM, avec sa chaîne. Laissez les deux vides si TLS se termine devant Gatehouse.",
  check: "Vérifier maintenant",
  default: "Fourni avec le locataire",
  domain: "Domaine",
  empty: "Aucun domaine pour l’instant",
  emptyAbout: "Ajoutez votre domaine pour servir ce locataire sous votre nom.",
  expires: "Expire",
  found: "{domain} est vérifié.",
  key: "Clé privée",
  keyAbout: "Elle est conservée chiffrée et jamais réaffichée.",
  recordName: "Nom",
  recordType: "Type",
  recordValue: "Valeur",
  records: "Enregistrements DNS de {domain}",
  recordsAbout:
    "Créez ces enregistrements chez votre fournisseur DNS, puis vérifiez. Les changements DNS peuvent prendre quelques minutes.",
  remove: "Retirer",
  removeAbout: "Les requêtes vers lui n’atteignent plus ce locataire. Son certificat est supprimé.",
  removeNamed: "Retirer {domain}",
  removeTitle: "Retirer ce domaine ?",
  replace: "Remplacer le certificat",
  show: "Enregistrements DNS",
  status: "Propriété",
  title: "Domaines",
  verifiedAt: "Vérifié",
};
export default domains;
