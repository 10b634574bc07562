import type en from "../en/coverage";
import type { Area } from "../shape";

const coverage: Area<typeof en> = {
  about: "Qué control cubre cada recurso y dónde hay huecos.",
  cell_bound: "Control de este recurso",
  cell_draft: "Borrador",
  cell_wide: "Control de todo el inquilino",
  controls: "Controles",
  cut: "Hay más de lo que cabe en la imagen. La tabla lo muestra todo.",
  gap: "Sin control propio",
  gapsOnly: "Solo huecos",
  matrix: "Controles en columnas, recursos en filas",
  picture: "Controles y recursos",
  protected: "Protegido",
  protection: "Protección",
  summary: {
    one: "{count} recurso, {gaps} sin control activo propio; {controls} controles, {wide} de ellos activos para todo el inquilino.",
    many: "{count} recursos, {gaps} sin control activo propio; {controls} controles, {wide} de ellos activos para todo el inquilino.",
    other:
      "{count} recursos, {gaps} sin control activo propio; {controls} controles, {wide} de ellos activos para todo el inquilino.",
  },
  table: "Recursos y sus controles",
};
export default coverage;
