import { cleanup } from "@testing-library/react";
import { afterEach } from "vitest";

// happy-dom has neither.
Object.defineProperty(document, "fonts", {
  value: { addEventListener() {}, removeEventListener() {}, ready: Promise.resolve() },
});
window.matchMedia ??= ((query: string) => ({
  matches: false,
  media: query,
  addEventListener() {},
  removeEventListener() {},
  addListener() {},
  removeListener() {},
})) as unknown as typeof window.matchMedia;

afterEach(cleanup);
