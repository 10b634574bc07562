import agents from "./agents";
import alerts from "./alerts";
import audit from "./audit";
import bouncers from "./bouncers";
import builder from "./builder";
import common from "./common";
import coverage from "./coverage";
import dashboard from "./dashboard";
import decisions from "./decisions";
import directory from "./directory";
import domains from "./domains";
import inventory from "./inventory";
import keys from "./keys";
import libraries from "./libraries";
import login from "./login";
import notifications from "./notifications";
import policies from "./policies";
import replays from "./replays";
import repositories from "./repositories";
import requests from "./requests";
import resources from "./resources";
import revisions from "./revisions";
import security from "./security";
import settings from "./settings";
import shell from "./shell";
import signon from "./signon";
import simulator from "./simulator";
import sources from "./sources";
import telemetry from "./telemetry";
import tenants from "./tenants";
import users from "./users";
import vendors from "./vendors";
import webhooks from "./webhooks";
import workbench from "./workbench";

// One area each line.
export default {
  common,
  dashboard,
  login,
  shell,
  decisions,
  policies,
  workbench,
  users,
  keys,
  revisions,
  bouncers,
  audit,
  builder,
  resources,
  replays,
  inventory,
  settings,
  security,
  signon,
  directory,
  notifications,
  alerts,
  telemetry,
  simulator,
  libraries,
  repositories,
  tenants,
  vendors,
  webhooks,
  sources,
  agents,
  requests,
  domains,
  coverage,
};
