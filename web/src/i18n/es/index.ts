import audit from "./audit";
import bouncers from "./bouncers";
import builder from "./builder";
import common from "./common";
import dashboard from "./dashboard";
import decisions from "./decisions";
import keys from "./keys";
import login from "./login";
import policies from "./policies";
import resources from "./resources";
import revisions from "./revisions";
import shell from "./shell";
import users from "./users";
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
};
