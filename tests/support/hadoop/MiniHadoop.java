import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS, and YARN where asked for, in this process: MiniHadoop FOLDER [yarn]. FOLDER/conf then has the `*-site.xml` of its clients; FOLDER/ready is
 * written last. Ends with its standard input or a signal.
 */
public final class MiniHadoop {
    public static void main(String[] words) throws Exception {
        try {
            run(words);
        } catch (Throwable error) { // threads of what has started would keep the process
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] words) throws Exception {
        Path folder = Path.of(words[0]);
        Path conf = Files.createDirectories(folder.resolve("conf"));
        Configuration settings = words.length > 1 ? new YarnConfiguration() : new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.resolve("dfs").toString());
        settings.set("dfs.namenode.datanode.registration.ip-hostname-check", "false");
        MiniDFSCluster files = new MiniDFSCluster.Builder(settings).numDataNodes(1).build();
        files.waitActive();
        Configuration core = new Configuration(false);
        core.set("fs.defaultFS", files.getURI().toString());
        write(core, conf.resolve("core-site.xml"));
        MiniYARNCluster yarn = null;
        if (words.length > 1) {
            settings.set("fs.defaultFS", files.getURI().toString());
            settings.set("yarn.resourcemanager.scheduler.class", "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
            settings.setInt("yarn.minimum.allocation.mb", 64);
            settings.setInt("yarn.nodemanager.resource.memory-mb", 6144);
            settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
            settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
            settings.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99.9f);
            settings.setInt("yarn.nodemanager.delete.debug-delay-sec", 600);
            yarn = new MiniYARNCluster("sluice", 1, 1, 1);
            yarn.init(settings);
            yarn.start();
            Configuration client = new Configuration(false);
            for (String name : new String[] {
                "yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address", "yarn.resourcemanager.resource-tracker.address",
                "yarn.resourcemanager.admin.address", "yarn.resourcemanager.webapp.address", "yarn.resourcemanager.hostname"}) {
                if (yarn.getConfig().get(name) != null) {
                    client.set(name, yarn.getConfig().get(name));
                }
            }
            write(client, conf.resolve("yarn-site.xml"));
        }
        Files.writeString(folder.resolve("ready.part"), files.getURI() + "\n" + files.getHttpUri(0).replace("http:", "webhdfs:"));
        Files.move(folder.resolve("ready.part"), folder.resolve("ready"));
        Thread.currentThread().join();
    }

    private static void write(Configuration settings, Path file) throws Exception {
        try (OutputStream output = new FileOutputStream(file.toFile())) {
            settings.writeXml(output);
        }
    }
}
