import { expect, test } from "vitest";
import { objectOf } from "./AgentForm";

test.each([
  ["", {}],
  ["  ", {}],
  ['{"a": [1]}', { a: [1] }],
  ["[]", undefined],
  ["null", undefined],
  ["1", undefined],
  ["{", undefined],
])("the object of %j", (text, want) => expect(objectOf(text)).toEqual(want));
