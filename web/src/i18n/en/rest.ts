import agents from "./agents";
import alerts from "./alerts";
import audit from "./audit";
import bouncers from "./bouncers";
import coverage from "./coverage";
import directory from "./directory";
import domains from "./domains";
import integrations from "./integrations";
import inventory from "./inventory";
import keys from "./keys";
import notifications from "./notifications";
import regions from "./regions";
import replays from "./replays";
import repositories from "./repositories";
import requests from "./requests";
import resources from "./resources";
import revisions from "./revisions";
import security from "./security";
import settings from "./settings";
import signon from "./signon";
import simulator from "./simulator";
import sources from "./sources";
import telemetry from "./telemetry";
import tenants from "./tenants";
import users from "./users";
import vendors from "./vendors";
import webhooks from "./webhooks";

// The areas of all other screens, which load them with their code.
export default {
  agents,
  alerts,
  audit,
  bouncers,
  coverage,
  directory,
  domains,
  integrations,
  inventory,
  keys,
  notifications,
  regions,
  replays,
  repositories,
  requests,
  resources,
  revisions,
  security,
  settings,
  signon,
  simulator,
  sources,
  telemetry,
  tenants,
  users,
  vendors,
  webhooks,
};
