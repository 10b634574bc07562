import type en from "../en/vendors";
import type { Area } from "../shape";

const vendors: Area<typeof en> = {
  about:
    "Les éditeurs qui intègrent gatehouse dans leurs produits. Chacun crée des locataires avec une clé de l'API OEM.",
  add: "Inscrire un éditeur",
  change: "Modifier un éditeur",
  deleteAbout: "Les clés de l'éditeur prennent fin aussitôt. Ses locataires restent tels quels.",
  deleteTitle: "Retirer cet éditeur ?",
  empty: "Pas encore d'éditeur",
  emptyAbout: "Inscrivez un éditeur qui crée des locataires par l'API OEM, et remettez-lui la clé.",
  id: "Identifiant",
  key: "Clé de l'éditeur",
  keyUsed: "Dernière utilisation de la clé",
  keys: "Clés",
  keysAbout: "Après un remplacement, il y en a deux pendant un temps.",
  made: "La clé de {name} est prête",
  maxTenants: "Locataires au plus",
  maxTenantsAbout: "Les locataires au-dessus d'une limite abaissée restent.",
  once: "La clé n'est affichée que cette fois. Remettez-la maintenant à l'éditeur.",
  remove: "Retirer",
  requests: "Requêtes par heure",
  requestsAbout: "Avec toutes les clés de l'éditeur ensemble.",
  rotateAbout: "Vous recevez une nouvelle clé. L'ancienne fonctionne encore une heure, le temps de la changer.",
  rotateTitle: "Remplacer la clé de cet éditeur ?",
  tenants: "Locataires",
  tenantsOf: "{used} sur {limit}",
  until: "fonctionne jusqu'à",
};
export default vendors;
