import common from "./common";
import dashboard from "./dashboard";
import decisions from "./decisions";
import login from "./login";
import shell from "./shell";

// One area each line.
export default {
  common,
  dashboard,
  login,
  shell,
  decisions,
};
