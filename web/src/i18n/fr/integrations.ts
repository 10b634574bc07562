import type en from "../en/integrations";
import type { Area } from "../shape";

const integrations: Area<typeof en> = {
  about:
    "Vos systèmes que gatehouse appelle : un SIEM qui reçoit les deux journaux d’audit, ou un programme qui agit selon les décisions.",
  about_siem_forwarder: "Il reçoit les deux journaux d’audit, dans l’ordre et au moins une fois.",
  about_webhook: "Il reçoit ce que les actions des contrôles lui envoient.",
  both: "Les deux",
  create: "Créer l’intégration",
  edit: "Modifier {name}",
  empty: "Aucune intégration pour l’instant",
  emptyAbout:
    "Ajoutez votre SIEM pour conserver l’audit hors de gatehouse, ou un programme que les actions des contrôles appellent.",
  enabled: "Lui envoyer des données",
  enabledAbout: "Tant que c’est désactivé, les entrées et les messages attendent.",
  endpointAbout: "Une URL https. Les réseaux internes ne sont pas appelés.",
  endpointSIEM:
    "Une URL https, syslog+tls://hôte:port, ou kafka+tls://hôte:port avec des virgules entre les brokers. Les réseaux internes ne sont pas appelés.",
  environmentAbout: "Il ne peut pas être modifié ensuite.",
  failing: { one: "{count} échec de suite", many: "{count} d’échecs de suite", other: "{count} échecs de suite" },
  kind: "Type",
  kind_siem_forwarder: "SIEM",
  kind_webhook: "Webhook d’actions",
  lastError: "Dernière erreur",
  new: "Nouvelle intégration",
  removeAbout: "Les entrées et messages en attente ne sont plus envoyés.",
  removeTitle: "Supprimer cette intégration ?",
  test: "Envoyer un test",
  testFailed: "Le système n’a pas accepté le test.",
  testTaken: "Le système a accepté le test.",
  about_workflow: "Les actions des contrôles le démarrent, et il répond comment il s’est terminé.",
  kind_workflow: "Flux de travail",
  run: "Exécution",
  runBy: "Répondu par",
  runCause: "Cause",
  runCreated: "En file",
  runEnded: "Fin",
  runMessage: "Réponse",
  runTest: "Test",
  runs: "Exécutions",
  runsAbout: "Chaque message qui démarre quelque chose dans le système figure ici, avec sa réponse.",
  runsEmpty: "Aucune exécution pour l’instant",
  about_approval_queue:
    "Il reçoit les demandes d’accès et en décide. Les actions des contrôles peuvent aussi l’appeler.",
  kind_approval_queue: "Système d’approbation",
  about_break_glass_bridge: "Il ouvre des octrois en urgence et apprend tous ceux qui sont ouverts.",
  kind_break_glass_bridge: "Système d’urgence",
  about_policy_engine:
    "Un registre ou bucket qui reçoit le bundle d’un bouncer, pour les moteurs de politiques qui n’atteignent pas gatehouse.",
  kind_policy_engine: "Dépôt de bundles de politiques",
  endpointEngine: "oci://registre/dépôt:étiquette, ou s3://hôte/bucket/clé. Les réseaux internes ne sont pas appelés.",
  pushed: "Bundle dans le dépôt",
  pushedWhat: "Révision {revision}, {digest}",
  pushedAt: "Envoyé",
};
export default integrations;
