import type en from "../en/keys";
import type { Area } from "../shape";

const keys: Area<typeof en> = {
  about: "Des clés pour les programmes. Chacune porte des droits et peut être limitée à un environnement.",
  actions: "Actions",
  add: "Créer une clé",
  days: { one: "{count} jour", many: "{count} de jours", other: "{count} jours" },
  empty: "Il n’y a pas encore de clés",
  emptyAbout:
    "Un programme qui demande des décisions, ou une chaîne qui déploie des contrôles, s’identifie avec une clé.",
  environmentAbout: "Une clé d’un environnement ne peut rien faire en dehors.",
  expired: "Expirée",
  expires: "Expire",
  hint: "Commence par",
  key: "Clé d’API",
  lastUsed: "Dernière utilisation",
  made: "La clé {name} est prête",
  name: "Nom",
  once: "La clé n’est affichée que cette fois. Rangez-la là où votre programme lit ses secrets.",
  revoke: "Révoquer",
  revokeAbout: "Les programmes qui utilisent la clé sont refusés aussitôt. Une clé révoquée ne revient pas.",
  revokeNamed: "Révoquer {name}",
  revokeTitle: "Révoquer cette clé ?",
  rotate: "Remplacer",
  rotateAbout:
    "Vous recevez une nouvelle clé avec les mêmes droits. L’ancienne fonctionne encore une heure, le temps de changer vos programmes.",
  rotateNamed: "Remplacer {name}",
  rotateTitle: "Remplacer cette clé ?",
  scopes: "Droits",
  scopesAbout: "Cochez seulement ce dont le programme a besoin. Vous pouvez donner ce que vous avez vous-même.",
  tryIt: "Essayez-la",
};
export default keys;
