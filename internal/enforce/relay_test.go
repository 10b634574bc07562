package enforce

import ()
