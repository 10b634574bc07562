import type en from "../en/coverage";
import type { Area } from "../shape";

const coverage: Area<typeof en> = {
  about: "Quel contrôle couvre quelle ressource, et où sont les lacunes.",
  cell_bound: "Contrôle de cette ressource",
  cell_draft: "Brouillon",
  cell_wide: "Contrôle de tout le locataire",
  controls: "Contrôles",
  cut: "Il y a plus que l’image ne peut montrer. Le tableau montre tout.",
  gap: "Sans contrôle propre",
  gapsOnly: "Lacunes seulement",
  matrix: "Contrôles en colonnes, ressources en lignes",
  picture: "Contrôles et ressources",
  protected: "Protégée",
  protection: "Protection",
  summary: {
    one: "{count} ressource, {gaps} sans contrôle actif propre ; {controls} contrôles, dont {wide} actifs pour tout le locataire.",
    many: "{count} ressources, {gaps} sans contrôle actif propre ; {controls} contrôles, dont {wide} actifs pour tout le locataire.",
    other:
      "{count} ressources, {gaps} sans contrôle actif propre ; {controls} contrôles, dont {wide} actifs pour tout le locataire.",
  },
  table: "Ressources et leurs contrôles",
};
export default coverage;
