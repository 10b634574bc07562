import "@mantine/core/styles.css";
import "./fonts.css";
import "./app.css";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { chosenLanguage, loadMessages } from "./i18n";
import { installNonce } from "./ui/nonce";
import { installTrustedTypes } from "./ui/trusted";

installTrustedTypes();
installNonce();

const language = chosenLanguage();
const root = document.getElementById("root");
if (root) {
  void loadMessages(language).then((messages) => createRoot(root).render(<App first={{ language, messages }} />));
}
