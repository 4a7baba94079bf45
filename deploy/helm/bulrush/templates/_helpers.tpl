{{- define "bulrush.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "bulrush.app" -}}
{{- default (include "bulrush.fullname" .) .Values.k8sApp -}}
{{- end -}}

{{- define "bulrush.service" -}}
{{- default (include "bulrush.fullname" .) .Values.service.name -}}
{{- end -}}

{{- define "bulrush.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bulrush.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A ClusterRole belongs to no namespace, so its name contains the release's name. */}}
{{- define "bulrush.clusterRole" -}}
{{- include "bulrush.fullname" . -}}
{{- end -}}

{{- define "bulrush.commonLabels" -}}
app.kubernetes.io/name: bulrush
app.kubernetes.io/component: sync-proxy
app.kubernetes.io/part-of: calico
{{- end -}}

{{- define "bulrush.labels" -}}
{{ include "bulrush.commonLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
k8s-app: {{ include "bulrush.app" . }}
{{- end -}}

{{- define "bulrush.selector" -}}
k8s-app: {{ include "bulrush.app" . }}
{{- end -}}

{{- define "bulrush.image" -}}
{{- if not .Values.image.repository -}}
{{- fail (printf "image.repository is not set, and there is no published image of Bulrush. Build it in the source tree and push it: docker build -t REGISTRY/bulrush:%s . && docker push REGISTRY/bulrush:%s; then give --set image.repository=REGISTRY/bulrush (docs/operations.md, The image)" .Chart.AppVersion .Chart.AppVersion) -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* Host, path and port of a probe. */}}
{{- define "bulrush.probe" -}}
httpGet:
  {{- if .root.Values.hostNetwork }}
  host: localhost
  {{- end }}
  path: {{ .path }}
  port: {{ .root.Values.health.port }}
{{- end -}}

{{/* Whether there is a pod for `helm test`: with TLS it needs an agent's certificate. */}}
{{- define "bulrush.tested" -}}
{{- and .Values.test.enabled (or (not .Values.tls.enabled) (ne .Values.test.tls.secretName "")) -}}
{{- end -}}

{{/* Options that ports, probes and mounts depend on, in small letters, and the value to set instead. */}}
{{- define "bulrush.ownOptions" -}}
serverport: set service.targetPort
healthenabled: the probes need it
healthhost: it follows from hostNetwork
healthport: set health.port
prometheusmetricsenabled: set metrics.enabled
prometheusmetricshost: set metrics.host
prometheusmetricsport: set metrics.port
logfilepath: the root file system cannot be written to
servercertfile: set tls.secretName and tls.certKey
serverkeyfile: set tls.secretName and tls.keyKey
cafile: set tls.caConfigMap or tls.caSecret, and tls.caKey
{{- end -}}

{{/* Fails with a message if `config` or `extraEnv` sets one of them: else probes could ask one port, and pods listen on another. */}}
{{- define "bulrush.refuse" -}}
{{- $own := include "bulrush.ownOptions" . | fromYaml -}}
{{- range $name, $_ := .Values.config -}}
{{- with get $own (lower $name) -}}
{{- fail (printf "config.%s: %s" $name .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- $name := .name -}}
{{- if hasPrefix "typha_" (lower $name) -}}
{{- with get $own (lower $name | trimPrefix "typha_") -}}
{{- fail (printf "extraEnv %s: %s" $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The options that follow from values; settings in `config` count more. */}}
{{- define "bulrush.options" -}}
{{- include "bulrush.refuse" . -}}
{{- $options := dict
  "DatastoreType" "kubernetes"
  "LogSeverityScreen" .Values.logSeverity
  "LogFilePath" "none"
  "LogSeveritySys" "none"
  "HealthEnabled" true
  "ConnectionRebalancingMode" "kubernetes"
  "K8sNamespace" .Release.Namespace
  "K8sServiceName" (include "bulrush.service" .)
  "K8sPortName" .Values.service.portName
  "ShutdownTimeoutSecs" (max 1 (sub (int .Values.terminationGracePeriodSeconds) 20))
-}}
{{- if ne (int .Values.service.targetPort) 5473 -}}
{{- $_ := set $options "ServerPort" (int .Values.service.targetPort) -}}
{{- end -}}
{{- if .Values.metrics.enabled -}}
{{- $_ := set $options "PrometheusMetricsEnabled" true -}}
{{- $_ := set $options "PrometheusMetricsPort" (int .Values.metrics.port) -}}
{{- with .Values.metrics.host -}}{{- $_ := set $options "PrometheusMetricsHost" . -}}{{- end -}}
{{- end -}}
{{- if ne (int .Values.health.port) 9098 -}}
{{- $_ := set $options "HealthPort" (int .Values.health.port) -}}
{{- end -}}
{{- if not .Values.hostNetwork -}}
{{- $_ := set $options "HealthHost" "none" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $options "ServerCertFile" (printf "/etc/bulrush/tls/%s" .Values.tls.certKey) -}}
{{- $_ := set $options "ServerKeyFile" (printf "/etc/bulrush/tls/%s" .Values.tls.keyKey) -}}
{{- $_ := set $options "CAFile" (printf "/etc/bulrush/ca/%s" .Values.tls.caKey) -}}
{{- if .Values.tls.clientCN -}}{{- $_ := set $options "ClientCN" .Values.tls.clientCN -}}{{- end -}}
{{- if .Values.tls.clientURISAN -}}{{- $_ := set $options "ClientURISAN" .Values.tls.clientURISAN -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.config -}}
{{- $_ := set $options $name $value -}}
{{- end -}}
{{- $options | toYaml -}}
{{- end -}}

{{/* Whether Calico's syncers run. */}}
{{- define "bulrush.calico" -}}
{{- $calico := "true" -}}
{{- range $name, $value := .Values.config -}}
{{- if and (eq (lower $name) "calicosyncers") (eq (lower (toString $value)) "none") -}}{{- $calico = "" -}}{{- end -}}
{{- end -}}
{{- $calico -}}
{{- end -}}

{{/* A value as typha.cfg takes it: numbers without an exponent; lists with commas; text that would begin a comment or go on with the
next line is in backticks. */}}
{{- define "bulrush.value" -}}
{{- $text := . | toString -}}
{{- if kindIs "slice" . -}}{{- $text = join ", " . -}}{{- end -}}
{{- if kindIs "float64" . -}}{{- if eq (floor .) . -}}{{- $text = . | int64 | toString -}}{{- end -}}{{- end -}}
{{- if regexMatch "[#;]|\\\\$" $text -}}`{{ $text }}`{{- else -}}{{ $text }}{{- end -}}
{{- end -}}
