import type en from "../en/agents";
import type { Area } from "../shape";

const agents: Area<typeof en> = {
  about:
    "Les agents qui demandent des décisions en leur propre nom. Les contrôles voient chacun comme le sujet agent:<id>.",
  attributes: "Attributs",
  attributesAbout: "Un objet JSON. Les contrôles le lisent comme input.user.attributes.",
  configuration: "Configuration",
  configurationAbout: "Un objet JSON. Les contrôles le lisent comme input.user.configuration.",
  controls: "Contrôles",
  controlsAbout: "Les contrôles écrits pour cet agent.",
  create: "Créer l’agent",
  decisions: "Décisions",
  decisionsOf: "Décisions de {name}",
  deleteAbout: "Les décisions ne connaissent plus ses attributs. Celles du journal restent.",
  deleteTitle: "Supprimer cet agent ?",
  empty: "Aucun agent pour l’instant",
  emptyAbout:
    "Enregistrez un agent pour lui donner des attributs lisibles par les contrôles et retrouver ses décisions.",
  model: "Modèle",
  name: "Nom",
  new: "Nouvel agent",
  noObject: "Ce n’est pas un objet JSON.",
  one: "Agent IA",
  provider: "Fournisseur",
  status: "État",
  subject: "Sujet",
  type: "Type",
  type_chatbot: "Chatbot",
  type_llm: "Modèle de langage",
  type_rag: "Recherche augmentée (RAG)",
  keys: "Clés",
  keysAbout: "Avec une clé, l’agent demande des décisions sur lui-même, et rien d’autre.",
  keysEmpty: "L’agent n’a pas de clé",
  keyCreate: "Créer une clé",
  keyRotate: "Remplacer la clé",
  keysRevoke: "Révoquer toutes les clés",
  keyMade: "La clé de {name} est prête",
  keyOnce: "La clé n’est affichée que cette fois. Donnez-la maintenant à l’agent.",
  keyEnds: "Fin",
  rotateTitle: "Remplacer la clé de cet agent ?",
  rotateAbout:
    "Vous recevez une nouvelle clé. L’ancienne fonctionne encore une heure, pour que vous puissiez la changer dans l’agent.",
  revokeTitle: "Révoquer toutes les clés de cet agent ?",
  revokeAbout: "L’agent est refusé aussitôt, jusqu’à ce que vous créiez une autre clé.",
};
export default agents;
