# Keeps an agent's code execution in quarantine: tools that run code are refused
# until the operator says that they run isolated (attributes.isolated_execution:
# true), and even then for code that reaches for credentials, for the host, or,
# unless permitted, for the network.
package templates.agent_code_exec_quarantine

# Parameter: roles that may have code run; empty: every caller with an identity.
runner_roles := []

# Parameter: whether isolated code may use the network.
network := false

# Parameter: further tools, by name, that run code.
code_tools := []

# Parameter: tools, by name, that run no code though they look like it.
other_tools := []

# Parameter: further texts (lower case) that code may not hold.
extra_forbidden := []

allow if count(deny) == 0

deny contains "The tool's name is missing or not plain" if {
	calling
	not tool
}

deny contains sprintf("The tool %q runs code, and this agent's code does not run isolated", [tool]) if {
	runs_code
	not isolated
}

deny contains "Code runs only for callers with an identity" if {
	runs_code
	not identified
}

deny contains sprintf("Code runs only for the roles %s", [concat(", ", runner_roles)]) if {
	runs_code
	count(runner_roles) > 0
	not holds(runner_roles)
}

deny contains "The code reaches for credentials or for the host" if {
	runs_code
	some text in code
	some sign in array.concat(forbidden, extra_forbidden)
	contains(text, sign)
}

deny contains "The code hides what it runs" if {
	runs_code
	some text in code
	regex.match(piped, text)
}

deny contains "The code hides what it runs as text" if {
	runs_code
	some text in code
	regex.match(`(?:eval|exec) ?\( ?(?:compile ?\()? ?(?:base64|codecs|zlib|bytes|__import__|atob|buffer)`, text)
}

deny contains "The code uses the network, which is closed to it" if {
	runs_code
	not network
	some text in code
	some sign in network_signs
	contains(text, sign)
}

reason := sprintf("The tool %q runs isolated", [tool]) if {
	runs_code
	count(deny) == 0
}

calling if input.mcp.method == "tools/call"

tool := input.mcp.tool if {
	is_string(input.mcp.tool)
	count(input.mcp.tool) <= 128
	regex.match(`^[A-Za-z0-9_./:-]+$`, input.mcp.tool)
}

isolated if input.resource.attributes.isolated_execution == true

runs_code if {
	calling
	lower(tool) in {lower(name) | some name in items(code_tools)}
}

runs_code if {
	calling
	not other
	some word in words
	word in running
}

runs_code if {
	calling
	not other
	some verb in {"run", "execute", "start", "launch"}
	verb in words
	some what in {"code", "script", "command", "program", "cell", "notebook", "process", "job", "file"}
	what in words
}

# runscript and vmexecutecode: the words are not set apart.
runs_code if {
	calling
	not other
	some word in words
	regex.match(joined, word)
}

# Whatever it is called, a tool that is given a command runs it.
runs_code if {
	calling
	not other
	some name, _ in input.mcp.arguments
	is_string(name)
	lower(name) in {"command", "cmd", "shell", "script", "bash", "python", "code_to_run", "source_code"}
}

joined := concat("", [
	`(?:run|exec|execute|launch|eval)(?:my|the)?`,
	`(?:code|scripts?|commands?|cmd|shell|bash|python|program|notebook)$`,
])

# Something fetched or decoded that goes straight into an interpreter.
piped := concat("", [
	`(?:curl|wget|base64|xxd|printf|echo)[^|;&]*\| *(?:[a-z0-9/_-]+/)?`,
	`(?:ba|z|da|k)?(?:sh|python[0-9.]*|perl|node|ruby)\b`,
])

other if lower(tool) in {lower(name) | some name in items(other_tools)}

running := {
	"exec", "eval", "shell", "bash", "sh", "zsh", "powershell", "pwsh", "cmd", "terminal", "python", "nodejs",
	"javascript",
	"repl", "interpreter", "subprocess", "jupyter", "ipython",
}

# runPython, run_python and run-python are the words run and python.
words := split(regex.replace(lower(regex.replace(apart, `([a-z0-9])([A-Z])`, "${1} ${2}")), `[^a-z0-9]+`, " "), " ")

# IAMDeleteUser and DBDrop: an abbreviation ends where a word begins.
apart := regex.replace(tool, `([A-Z])([A-Z][a-z])`, "${1} ${2}")

# The arguments' texts as a shell reads them: without quotes, backslashes and spare spaces.
code contains text if {
	calling
	walk(input.mcp.arguments, [_, value])
	is_string(value)
	bare := strings.replace_n({"'": "", "\"": "", "\\": "", "${ifs}": " ", "$ifs": " "}, lower(value))
	text := regex.replace(bare, `\s+`, " ")
}

forbidden := [
	"169.254.169.254", "169.254.43518", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "metadata.google",
	"fd00:ec2::254", "100.100.100.200",
	"/etc/shadow", "/etc/passwd", "/etc/sudoers", "/.ssh", "id_rsa", "id_ed25519", ".aws/", ".kube/config", ".netrc",
	".docker/config", ".git-credentials",
	"/proc/self/environ", "/proc/1/", "/proc/sys", "docker.sock", "containerd.sock", "/var/run/secrets",
	"release_agent", "nsenter", "--privileged",
	"/dev/tcp/", "/dev/mem", "insmod", "modprobe", "mount -", "chroot ", "setuid", "ptrace", "ld_preload",
	"os.environ", "process.env", "printenv", "sudo ", "nc -e", "ncat -e", "mkfifo ",
]

network_signs := [
	"http://", "https://", "ftp://", "curl ", "wget ", "socket", "requests.", "urllib", "httpx", "aiohttp", "fetch(",
	"xmlhttprequest",
	"paramiko", "smtplib", "ssh ", "scp ", "rsync ", "telnet ", "nslookup ", "dig ", "ping ", "pip install",
	"npm install", "apt install",
	"apt-get ", "net.connect", "invoke-webrequest", "git clone",
]

holds(roles) if {
	identified
	some role in input.user.roles
	is_string(role)
	some permitted in roles
	lower(role) == lower(permitted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
