import common from "./common";
import dashboard from "./dashboard";
import decisions from "./decisions";
import login from "./login";
import policies from "./policies";
import shell from "./shell";
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
};
