import type en from "../en/integrations";
import type { Area } from "../shape";

const integrations: Area<typeof en> = {
  about:
    "Sistemas propios a los que llama gatehouse: un SIEM que recibe ambos registros de auditoría o un programa que actúa según las decisiones.",
  about_siem_forwarder: "Recibe ambos registros de auditoría, en orden y al menos una vez.",
  about_webhook: "Recibe lo que le envían las acciones de los controles.",
  both: "Ambos",
  create: "Crear integración",
  edit: "Editar {name}",
  empty: "Aún no hay integraciones",
  emptyAbout:
    "Añada su SIEM para guardar la auditoría fuera de gatehouse, o un programa al que llamen las acciones de los controles.",
  enabled: "Enviarle datos",
  enabledAbout: "Mientras está desactivado, las entradas y los mensajes esperan.",
  endpointAbout: "Una URL https. No se llama a redes internas.",
  endpointSIEM:
    "Una URL https, syslog+tls://host:puerto, o kafka+tls://host:puerto con comas entre los brokers. No se llama a redes internas.",
  environmentAbout: "No se puede cambiar después.",
  failing: { one: "{count} fallo seguido", many: "{count} de fallos seguidos", other: "{count} fallos seguidos" },
  kind: "Tipo",
  kind_siem_forwarder: "SIEM",
  kind_webhook: "Webhook de acciones",
  lastError: "Último error",
  new: "Nueva integración",
  removeAbout: "Las entradas y los mensajes en espera ya no se envían.",
  removeTitle: "¿Eliminar esta integración?",
  test: "Enviar prueba",
  testFailed: "El sistema no aceptó la prueba.",
  testTaken: "El sistema aceptó la prueba.",
  about_workflow: "Las acciones de los controles lo inician, y responde cómo terminó.",
  kind_workflow: "Flujo de trabajo",
  run: "Ejecución",
  runBy: "Respondió",
  runCause: "Causa",
  runCreated: "En cola",
  runEnded: "Fin",
  runMessage: "Respuesta",
  runTest: "Prueba",
  runs: "Ejecuciones",
  runsAbout: "Aquí aparece cada mensaje que inicia algo en el sistema, con su respuesta.",
  runsEmpty: "Aún no hay ejecuciones",
  about_approval_queue:
    "Recibe solicitudes de acceso y las decide. Las acciones de los controles también pueden llamarlo.",
  kind_approval_queue: "Sistema de aprobación",
  about_break_glass_bridge: "Abre concesiones en emergencias y recibe aviso de todas las abiertas.",
  kind_break_glass_bridge: "Sistema de emergencia",
  about_policy_engine:
    "Un registro o bucket que recibe el bundle de un bouncer, para los motores de políticas que no alcanzan gatehouse.",
  kind_policy_engine: "Almacén de bundles de políticas",
  endpointEngine: "oci://registro/repositorio:etiqueta, o s3://host/bucket/clave. No se llama a redes internas.",
  pushed: "Bundle en el almacén",
  pushedWhat: "Revisión {revision}, {digest}",
  pushedAt: "Enviado",
};
export default integrations;
