import type en from "../en/agents";
import type { Area } from "../shape";

const agents: Area<typeof en> = {
  about: "Agentes que piden decisiones en su propio nombre. Los controles ven a cada uno como el sujeto agent:<id>.",
  attributes: "Atributos",
  attributesAbout: "Un objeto JSON. Los controles lo leen como input.user.attributes.",
  configuration: "Configuración",
  configurationAbout: "Un objeto JSON. Los controles lo leen como input.user.configuration.",
  controls: "Controles",
  controlsAbout: "Los controles escritos para este agente.",
  create: "Crear agente",
  decisions: "Decisiones",
  decisionsOf: "Decisiones de {name}",
  deleteAbout: "Las decisiones dejan de conocer sus atributos. Las del registro se conservan.",
  deleteTitle: "¿Eliminar este agente?",
  empty: "Aún no hay agentes",
  emptyAbout: "Registre un agente para darle atributos que los controles puedan leer y encontrar sus decisiones.",
  model: "Modelo",
  name: "Nombre",
  new: "Nuevo agente",
  noObject: "Esto no es un objeto JSON.",
  one: "Agente de IA",
  provider: "Proveedor",
  status: "Estado",
  subject: "Sujeto",
  title: "Agentes de IA",
  type: "Tipo",
  type_chatbot: "Chatbot",
  type_llm: "Modelo de lenguaje",
  type_rag: "Recuperación (RAG)",
};
export default agents;
